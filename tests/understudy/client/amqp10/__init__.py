"""The client kit over AMQP 1.0. Without Proton none of these tests is played."""
