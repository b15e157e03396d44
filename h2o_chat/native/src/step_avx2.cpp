#include "lanes_avx2.h"
#include "step.h"

const Form form_avx2 = {decode, embed, before, after, head};
