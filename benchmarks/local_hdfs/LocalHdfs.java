import com.google.protobuf.BlockingService;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.MethodDescriptor;
import com.google.protobuf.Descriptors.ServiceDescriptor;
import com.google.protobuf.Message;
import com.google.protobuf.RpcController;
import com.google.protobuf.ServiceException;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Field;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.hdfs.protocol.proto.ClientNamenodeProtocolProtos.ClientNamenodeProtocol;
import org.apache.hadoop.hdfs.protocolPB.ClientNamenodeProtocolPB;
import org.apache.hadoop.hdfs.protocolPB.ClientNamenodeProtocolServerSideTranslatorPB;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.FSNamesystem;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.hdfs.server.protocol.NamenodeProtocols;
import org.apache.hadoop.ipc.RPC;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;

/**
 * A NameNode and a DataNode on loopback, for as long as standard input is open; java runs this file as it is.
 *
 * <p>Prints the NameNode's port. Then each line that comes in is a question, and is answered with one line of JSON:
 * {@code calls} (requests of clients by kind and path, counted at the door of the NameNode), {@code jmx} (the same by kind
 * only, as the NameNode's own bean says). Or it is an order: {@code restart-data-node} (blocks that are being written need
 * a recovery then), {@code lease-soft-limit <ms>} (after so long without a word a writer counts as dead).
 */
public final class LocalHdfs {
  private static final long JMX_CACHE_MS = 1_100;

  private LocalHdfs() {}

  /** Hands requests on to the NameNode and counts them. */
  private record Counting(BlockingService target, Map<String, LongAdder> counts) implements BlockingService {
    @Override
    public ServiceDescriptor getDescriptorForType() {
      return target.getDescriptorForType();
    }

    @Override
    public Message callBlockingMethod(MethodDescriptor method, RpcController controller, Message request)
        throws ServiceException {
      counts.computeIfAbsent(method.getName() + " " + path(request), k -> new LongAdder()).increment();
      return target.callBlockingMethod(method, controller, request);
    }

    /** What the request is about; nothing for those that name no path, such as the renewal of a client's leases. */
    private static String path(Message request) {
      for (String name : new String[] {"src", "path"}) {
        FieldDescriptor field = request.getDescriptorForType().findFieldByName(name);
        if (field != null && field.getType() == FieldDescriptor.Type.STRING) {
          return (String) request.getField(field);
        }
      }
      return "";
    }

    @Override
    public Message getRequestPrototype(MethodDescriptor method) {
      return target.getRequestPrototype(method);
    }

    @Override
    public Message getResponsePrototype(MethodDescriptor method) {
      return target.getResponsePrototype(method);
    }
  }

  /** Arguments are Hadoop settings, {@code key=value}. */
  public static void main(String[] arguments) {
    int status = 1;
    try {
      serve(arguments);
      status = 0;
    } catch (Exception | Error e) {
      e.printStackTrace();
    } finally {
      // Whoever started this is gone, or is done with it; nothing here is worth a clean end.
      Runtime.getRuntime().halt(status);
    }
  }

  private static void serve(String[] arguments) throws Exception {
    PrintStream answers = System.out;
    System.setOut(System.err);
    // Two servers in one process, and formatting is a third: their metrics must not collide.
    DefaultMetricsSystem.setMiniClusterMode(true);
    Configuration conf = new Configuration();
    for (String argument : arguments) {
      String[] setting = argument.split("=", 2);
      conf.set(setting[0], setting[1]);
    }
    NameNode.format(conf);
    NameNode nameNode = NameNode.createNameNode(new String[0], conf);
    int port = nameNode.getNameNodeAddress().getPort();
    Map<String, LongAdder> counts = countRequests(nameNode);
    conf.set("fs.defaultFS", "hdfs://127.0.0.1:" + port);
    conf.set("dfs.namenode.servicerpc-address", "127.0.0.1:" + servicePort(nameNode));
    DataNode dataNode = startDataNode(nameNode, conf);
    answers.println(port);
    BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
    for (String question; (question = questions.readLine()) != null; ) {
      String[] words = question.split(" ");
      Map<String, Long> answer = Map.of();
      switch (words[0]) {
        case "calls" -> answer = copy(counts);
        case "jmx" -> answer = jmx(port);
        case "restart-data-node" -> {
          dataNode.shutdown();
          dataNode = startDataNode(nameNode, conf);
        }
        case "lease-soft-limit" -> leaseSoftLimit(nameNode, Long.parseLong(words[1]));
        default -> throw new IllegalArgumentException(question);
      }
      answers.println(json(answer));
    }
    FileUtil.fullyDelete(new File(conf.get("hadoop.tmp.dir")));
  }

  /** Returns when the NameNode knows of the DataNode, and of its blocks. */
  private static DataNode startDataNode(NameNode nameNode, Configuration conf) throws Exception {
    DataNode dataNode = DataNode.createDataNode(new String[0], conf);
    while (!dataNode.isDatanodeFullyStarted() || nameNode.getNamesystem().getNumLiveDataNodes() == 0
        || nameNode.isInSafeMode()) {
      Thread.sleep(10);
    }
    return dataNode;
  }

  private static void leaseSoftLimit(NameNode nameNode, long limitMs) throws Exception {
    Object leases = field(FSNamesystem.class, "leaseManager").get(nameNode.getNamesystem());
    long hardLimitMs = field(leases.getClass(), "hardLimit").getLong(leases);
    leases.getClass().getMethod("setLeasePeriod", long.class, long.class).invoke(leases, limitMs, hardLimitMs);
  }

  /** Puts the counter in front of what answers clients; the server's own metrics go on counting. */
  private static Map<String, LongAdder> countRequests(NameNode nameNode) throws Exception {
    Map<String, LongAdder> counts = new ConcurrentHashMap<>();
    NamenodeProtocols answering = nameNode.getRpcServer();
    BlockingService service = ClientNamenodeProtocol.newReflectiveBlockingService(
        new ClientNamenodeProtocolServerSideTranslatorPB(answering));
    server(answering, "clientRpcServer")
        .addProtocol(RPC.RpcKind.RPC_PROTOCOL_BUFFER, ClientNamenodeProtocolPB.class, new Counting(service, counts));
    return counts;
  }

  private static int servicePort(NameNode nameNode) throws Exception {
    return server(nameNode.getRpcServer(), "serviceRpcServer").getListenerAddress().getPort();
  }

  private static RPC.Server server(NamenodeProtocols answering, String name) throws Exception {
    return (RPC.Server) field(answering.getClass(), name).get(answering);
  }

  private static Field field(Class<?> type, String name) throws Exception {
    Field field = type.getDeclaredField(name);
    field.setAccessible(true);
    return field;
  }

  private static Map<String, Long> copy(Map<String, LongAdder> counts) {
    Map<String, Long> copy = new TreeMap<>();
    counts.forEach((key, count) -> copy.put(key, count.sum()));
    return copy;
  }

  private static Map<String, Long> jmx(int port) throws Exception {
    Thread.sleep(JMX_CACHE_MS);
    MBeanServer beans = ManagementFactory.getPlatformMBeanServer();
    ObjectName name = new ObjectName("Hadoop:service=NameNode,name=RpcDetailedActivityForPort" + port);
    Map<String, Long> counts = new TreeMap<>();
    for (MBeanAttributeInfo attribute : beans.getMBeanInfo(name).getAttributes()) {
      String kind = attribute.getName();
      if (kind.endsWith("NumOps")) {
        long count = ((Number) beans.getAttribute(name, kind)).longValue();
        if (count > 0) {
          counts.put(kind.substring(0, kind.length() - "NumOps".length()), count);
        }
      }
    }
    return counts;
  }

  private static String json(Map<String, Long> counts) {
    StringJoiner joined = new StringJoiner(", ", "{", "}");
    counts.forEach((key, count) ->
        joined.add("\"" + key.replace("\\", "\\\\").replace("\"", "\\\"") + "\": " + count));
    return joined.toString();
  }
}
