"""The mathematics of the methods: numpy and scipy, no Flower."""
