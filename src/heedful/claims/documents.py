"""The five texts, named once."""

A = "IFT6135 2022, assignment 2 (theory)"
B = "EECS 182 spring 2023, homework 7"
C = "UvA Deep Learning 1, 2024, assignment 2"
D = "CSC413 2024, assignment 4"
E = "NYU Deep Learning, spring 2023, homework 3"

DOCUMENTS = {"A": A, "B": B, "C": C, "D": D, "E": E}
