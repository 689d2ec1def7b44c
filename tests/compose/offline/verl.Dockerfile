# The generator with verl for the CPU, whose packages (3 GB) are mounted from .venv-verl instead of installed. As in the image for
# GPUs, `ray` is in /opt/verl/bin and `python3` is the system's.
ARG GENERATOR
FROM ${GENERATOR}
USER root
# vLLM's CPU build asks for them.
RUN apt-install libgomp1 libnuma1
RUN mkdir -p /opt/verl/bin /opt/packages \
    && printf '%s\n' '#!/usr/local/bin/python3' 'from ray.scripts.scripts import main' 'main()' >/opt/verl/bin/ray \
    && chmod 755 /opt/verl/bin/ray
ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONPATH=/opt/plumbline:/opt/packages
USER 10001:10001
CMD ["python3", "-m", "services.generator"]
