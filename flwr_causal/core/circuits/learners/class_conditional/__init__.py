"""Class-conditional circuits: elliptical leaves for each class, trained by sums over rows."""
