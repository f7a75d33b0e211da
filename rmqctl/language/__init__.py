"""What rmqctl says in other languages than English: which one holds, its catalogues, lines, wrapped text, help."""
