"""Code that several API handlers share: request context, authorization, leader lookup and long responses."""
