"""The same clients on other machines, under Flower: records to pytrees and back."""
