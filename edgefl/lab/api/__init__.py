"""What `import edgefl` offers: simulate, compare, sweep, load, and what they take and give back."""
