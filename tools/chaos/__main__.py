"""`python -m tools.chaos`."""

from tools.chaos.command import app
from tools.command import run

if __name__ == "__main__":
    run(app)
