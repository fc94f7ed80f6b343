"""The commands: every public function of a file here is one, named like it."""
