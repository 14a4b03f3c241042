"""Federation: one hop of messages from an exchange of another cluster to the exchange of that name here."""
