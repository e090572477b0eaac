"""Pure decisions of a device."""
