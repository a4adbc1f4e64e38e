"""Scripts as people write and publish them, on made-up data: each runs half a minute on two cores, and knows no placer.

``validators/scripts.py`` runs them. They are not imported.
"""
