"""The federated methods: client updates, and the rounds that run them."""
