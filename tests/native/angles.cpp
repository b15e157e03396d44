// Cosines and sines for every_function.cpp, in the place of the system's, which are not the same bits everywhere. With
// these its digest is the same on every processor and system. No headers: they declare these functions in several ways.

struct Inverses {  // of (n + 1) (n + 2): a division in each term takes longer than all else of the program
    double of[30];
    constexpr Inverses() : of() {
        for (int n = 0; n < 30; ++n) of[n] = 1.0 / ((n + 1) * (n + 2));
    }
};

static constexpr Inverses kInverses;

static double series(double x, double term, int n) {  // of the cosine or the sine
    double all = 0;
    for (; n < 30; n += 2) {
        all += term;
        term = -term * x * x * kInverses.of[n];
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
