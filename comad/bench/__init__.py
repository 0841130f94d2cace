"""How fast and how well: measurements that anybody can repeat on their own machine."""
