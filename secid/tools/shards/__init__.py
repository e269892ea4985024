"""Score in parts on several machines: split the queries into shards, count texts over all shards, and merge."""
