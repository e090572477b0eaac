"""How a run goes, told to the tools that people have: each of them a reader of facts, and none a part of the run."""
