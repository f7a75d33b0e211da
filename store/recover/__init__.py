"""`recover`: what a recovery decides, plans and carries out."""
