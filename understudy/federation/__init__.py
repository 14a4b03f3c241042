"""The whole net of federated brokers, as one who may ask all of them sees it."""
