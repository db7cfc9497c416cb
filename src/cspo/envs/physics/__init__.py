"""Stepping many MuJoCo simulations: in the library, compiled, with the chained RK4 of old."""
