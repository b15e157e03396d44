// Cosines and sines for every_function.cpp, in the place of the system's, which are not the same bits everywhere. With
// these its digest is the same on every processor and system. No headers: they declare these functions in several ways.

static double series(double x, double term, int n) {  // of the cosine or the sine
    double all = 0;
    for (; n < 30; n += 2) {
        all += term;
        term = -term * x * x / ((n + 1) * (n + 2));
    }
    return all;
}

static double reduced(float x) { return __builtin_fmod(x, 6.283185307179586); }

extern "C" {
float cosf(float x) { return static_cast<float>(series(reduced(x), 1, 0)); }
float sinf(float x) { return static_cast<float>(series(reduced(x), reduced(x), 1)); }
void sincosf(float x, float *sine, float *cosine) {
    *sine = sinf(x);
    *cosine = cosf(x);
}
}
