"""How steadily a loaded broker answers: `make bench-steady`."""
