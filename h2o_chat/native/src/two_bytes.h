// Numbers of two bytes where a form multiplies bytes: 32 high bytes, then 32 low ones. Included at the end of a lanes_*.h;
// lanes_plain.h says what these functions do.

#pragma once

namespace {

inline void store_two_bytes(int8_t *group, int at, Floats high, Floats low) {
    store_bytes(group + at, high);
    store_bytes(group + 32 + at, low);
}

// Both bytes take the same sums in turn: as many as one byte needs stay in registers.
template <int B>
inline void times_two_bytes(const uint8_t *weights, const int8_t *groups, Ints *products) {
    Ints sums[B];
    for (Ints &one : sums) one = splat(0);
    for (int byte = 0; byte < 64; byte += 32) {
        if (byte)
            for (int b = 0; b < B; ++b) sums[b] = add(times_256(sums[b]), products[b]);
        for (int j = 0; j < 8; ++j) {
            const Bytes all = load_bytes(weights + 64 * j);
            for (int b = 0; b < B; ++b) sums[b] = dot8(sums[b], all, groups + 64 * b + byte + 4 * j);
        }
    }
    for (int b = 0; b < B; ++b) products[b] = sums[b];
}

using Words = const uint8_t *;
inline Words to_words(const uint8_t *weights) { return weights; }
template <int B>
inline void times_words(Words weights, const int8_t *groups, Ints *products) {
    times_two_bytes<B>(weights, groups, products);
}

template <class T>
inline T kept(T a) {
    return a;
}

}  // namespace
