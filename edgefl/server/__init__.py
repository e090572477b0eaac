"""A fleet's long-lived service: it keeps presence, renews certificates, and runs coordinators from a queue.

API, page, command line ──▶ shell/service.py ──▶ decide/runs.py (pure) ──▶ journal ──▶ coordinators started, stopped
broker ──▶ presence ──┘                              facts ──▶ audit log, page, webhooks, alerts
"""
