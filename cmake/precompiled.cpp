// The one file of the targets whose precompiled headers others reuse (layers.cmake).
int main() { return 0; }
