"""What a device decides is carried out here."""
