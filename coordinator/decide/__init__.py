"""Pure decisions: state and event in, state, actions and facts out."""
