"""A push consumer: pulls messages ahead, hands them to a callback (DefaultMQPushConsumerImpl)."""
