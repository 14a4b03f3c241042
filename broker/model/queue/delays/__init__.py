"""What a delayed-message exchange keeps until its time comes."""
