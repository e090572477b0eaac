"""Training in a box: a process of its own runs the graphs, and can do nothing else.

    agent ──────────── forked first of all, before any thread, key or password ───────────▶ fork server
      │  fork_client.py                                                                      │ fork_server.py
      │                                                                                      │ has the engine loaded
      │                                                                                      │ forks
      │         order: task, model, graphs, state ──▶                                        ▼
      └──────── one socket (channel.py), samples in shared memory ────────────────────────▶ box
                ◀── steps, and the update or why there is none                                 inside.py

The agent has the network, the keys and the disk, and never loads onnxruntime. The box has the samples and the graphs,
and no file, no socket, no program, no second process (`edgefl.system.confinement`). Whatever a graph does to it costs
a task: the agent declines, and has another box forked for the next. To cancel is to end the box. The kernel ends the
fork server with the agent, and the box with the fork server.
"""
