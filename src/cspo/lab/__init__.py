"""What is compared: metrics, studies, reports, the toy problem, speed."""
