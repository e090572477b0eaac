"""A fleet's identities: its authority, its members, the kits that devices are installed from, its broker."""
