"""What ledgers must satisfy: DataFrame to DataFrame, each check a module."""
