# xmemcached, a Java client: the tests that need a server, with the text and the binary protocol. Left
# out are two tests of a pool, which use a server of their own, and those of AWS and of Google, whose
# configuration servers name their ports.
. "$suites/github.sh"

prepare_suite() {
    need javac default-jdk-headless
    need mvn maven
    prepare_clone killme2008/xmemcached xmemcached-2.4.9 61b4106b7f127bd8491cf030f70d0e0f0d3d1f4b
    # The sources are of Java 5; no later Java than 7 compiles all the tests.
    (cd "$sources/source" && mvn -B -q -DskipTests -Dformatter.skip=true -Dmaven.compiler.source=7 -Dmaven.compiler.target=7 \
        test-compile org.apache.maven.plugins:maven-dependency-plugin:2.10:build-classpath -Dmdep.outputFile=target/classpath)
    cat >"$sources/Results.java" <<'RESULTS'
import org.junit.runner.*;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.notification.*;

public class Results extends RunListener {
    private boolean failed;

    public static void main(String[] names) throws Exception {
        JUnitCore core = new JUnitCore();
        core.addListener(new Results());
        for (String name : names) {
            Request request = Request.aClass(Class.forName(name));
            core.run(request.filterWith(new Filter() {
                public boolean shouldRun(Description test) { return test.isSuite() || !test.getMethodName().matches("test(Disable)?HealSession"); }
                public String describe() { return "tests of a server"; }
            }));
        }
        // The clients of some tests are still running.
        System.exit(0);
    }

    public void testStarted(Description test) { failed = false; }

    public void testFailure(Failure failure) {
        failed = true;
        System.err.println(failure.getTestHeader() + ": " + failure.getTrace());
    }

    public void testFinished(Description test) {
        System.out.println("\nRESULT " + (failed ? "fail " : "pass ") + test.getTestClass().getSimpleName() + "." + test.getMethodName());
    }
}
RESULTS
}

run_suite() {
    local path tests=net.rubyeye.xmemcached.test.unittest
    rm -rf "${sources:?}/run"
    mkdir "$sources/run"
    printf 'test.memcached.servers=%s:%s\ntest.memcached.host=%s\ntest.memcached.port=%s\n' "$1" "$2" "$1" "$2" >"$sources/run/test.properties"
    path="$sources/run:$sources/source/target/test-classes:$sources/source/target/classes:$(cat "$sources/source/target/classpath")"
    timeout 900 java -cp "$path" "$sources/Results.java" $tests.{Binary,ConnectionPool,ConsistentHash,StandardHash}MemcachedClientIT \
        $tests.XMemcachedClientWithKeyProviderIT $tests.{impl.MemcachedClientStateListener,utils.XMemcachedClientFactoryBean}IT |
        tee "$scratch/xmemcached" || true
    sed -n 's/^RESULT //p' "$scratch/xmemcached" >"$3"
}
