"""One RocketMQ store on one machine: open, put, get, query, recover, rebuild, clean."""
