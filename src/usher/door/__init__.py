"""The door decides which URLs may come in, and when: `doorkeeper.Doorkeeper` judges and queues them."""
