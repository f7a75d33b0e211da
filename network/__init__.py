"""The wire: remoting protocol, name server, broker and clients over one store."""
