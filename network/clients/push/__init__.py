"""Push consumer: pulls in advance and calls a callback (DefaultMQPushConsumerImpl)."""
