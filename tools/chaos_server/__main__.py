"""`python -m tools.chaos_server`."""

from tools.chaos_server.command import app
from tools.command import run

if __name__ == "__main__":
    run(app)
