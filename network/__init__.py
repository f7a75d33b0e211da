"""The store on the wire: RocketMQ's remoting protocol, a name server and a broker over one store."""
