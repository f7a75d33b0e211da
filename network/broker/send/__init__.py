"""What producers send and consumers send back: checked, assembled and put."""
