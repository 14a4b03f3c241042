"""Several clusters in one world, federated with each other."""
