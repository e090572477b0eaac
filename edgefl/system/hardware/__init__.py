"""What devices and their lines are like, where they are emulated."""
