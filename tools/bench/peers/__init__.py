"""Our rounds beside those of others on the same machine in the same run: Flower's gRPC loop, and clients without a
framework. Each side is a server process and its clients; they take turns, and one meter looks at all of them.
"""
