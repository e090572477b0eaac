"""What only developers need: it stands above everything, is tested like everything, and is installed nowhere."""
