"""`python -m tools.bench`."""

from tools.bench.commands import app
from tools.command import run

if __name__ == "__main__":
    run(app)
