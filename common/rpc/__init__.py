"""The floor that speaks gRPC: TLS, channels, servers, presence, and what may leave."""
