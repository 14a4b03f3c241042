"""The pair controller of OpenAMQ: two nodes decide by themselves which one serves."""
