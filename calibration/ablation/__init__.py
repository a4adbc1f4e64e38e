"""What each mechanism of pricing is worth: each is switched off in turn, and errors and decisions are compared."""
